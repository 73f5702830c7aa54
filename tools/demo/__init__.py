"""What `make demo` shows: the product's idea, small, on this machine alone.

facts      what is seen of a group at one moment; reads API objects, control APIs and logs, pure
story      the acts: what is done, what must be seen, how long that may take; pure
smollm2    the same for SmolLM2: no accidents, more patience; pure
play       which of them is played
screen     the live view as lines of text; pure
summary    the last words, and what the page has; pure
charts, page    plots as SVG, and the one HTML page; pure
group      the group that is applied, and the chart's values; pure
nodes, planes   where it all runs: real nodes, or local processes where namespaces are forbidden
watch      looks at the group, once a second
stage      runs the acts in order
terminal   draws, or prints line by line where nobody watches
"""

"""What `kubectl syncgroup` sees of a cluster and says about it.

    targets     which API server and namespace a person means: kubeconfig, context, options
    reading     asks that API server; every failure is a sentence with what to do
    facts       what was read, as plain values                                            pure
    top, links  tables                                                                    pure
    why         sentences and the next command                                            pure
    advice      what every reason of the operator means and what to type next             pure

The same contract and client as the operator's; nothing here writes but `reading.ask`.
"""

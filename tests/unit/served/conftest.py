from tests.support.states import compile_loops

compile_loops()  # at collection: compiling takes longer than a test may

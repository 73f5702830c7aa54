from tests.support.interop import compile_interop_loops

compile_interop_loops()  # at collection: compiling takes longer than a test may

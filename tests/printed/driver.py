"""Execute blocks of Python one after the other, with the same names: each a line of JSON, and so is the answer."""

import contextlib
import io
import json
import sys
import traceback


def main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        printed, ended = io.StringIO(), True
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(json.loads(line), "<block>", "exec"), names)
            except BaseException:
                ended = False
                traceback.print_exc(file=printed)
        print(json.dumps([ended, printed.getvalue()]), flush=True)


if __name__ == "__main__":
    main()

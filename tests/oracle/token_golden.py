# SPDX-License-Identifier: Apache-2.0
"""Golden cases for tests/e2e/check_token_files.py: a model's tokenizer files, texts, and what a
reference says."""
import base64
import json
import lzma


class Golden:
    def __init__(self, n=72):
        self.n, self.cases = n, []

    def add(self, name, files, flags, texts, ids, back=None, **more):
        """files: of a folder, name -> JSON value or bytes; or the bytes of a GGUF file."""
        if isinstance(files, bytes):
            files = {"model.gguf": files}
        k = slice(0, self.n)
        case = dict(name=name, flags=flags, texts=texts[k], ids=ids[k],
                    files={f: {"b64": base64.b64encode(x).decode()} if isinstance(x, bytes) else x
                           for f, x in files.items()})
        if back is not None:
            case["back"] = back[k]
        self.cases.append(dict(case, **more))

    def save(self, path):
        """Put these cases in the place of those of the same names."""
        try:
            old = json.loads(lzma.open(path).read())
        except FileNotFoundError:
            old = []
        new = {c["name"] for c in self.cases}
        all_ = [c for c in old if c["name"] not in new] + self.cases
        text = json.dumps(all_, ensure_ascii=True, separators=(",", ":"))
        with open(path, "wb") as f:
            f.write(lzma.compress(text.encode(), preset=9))

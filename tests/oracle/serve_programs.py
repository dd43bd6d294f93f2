#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs Claude Code and Codex themselves against `sluice serve`: each reads a file by its
own tool and answers, over its own loop of turns. Both come from PyPI (claude-agent-sdk and
openai-codex-cli-bin carry them). A relay between them and the server makes a small model a
tolerable agent: it asks for the tool by name and the file by its only value in the first turn, for
no tool in the next, whose answer is one of two by a schema; all else of the requests goes through
as it came. Codex runs its command without its own sandbox, which needs bubblewrap: `cat a.py` is
all there can be. By hand (a minute or two):

    PIP="python3 -m pip download --no-deps -d /tmp/agents"
    $PIP claude-agent-sdk==0.2.189 openai-codex-cli-bin==0.163.0
    for f in /tmp/agents/*.whl; do python3 -m zipfile -e $f /tmp/agents; done
    tests/oracle/serve_programs.py build SmolLM2-135M-Instruct.Q4_1.gguf /tmp/agents
"""
import http.client
import http.server
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading

if len(sys.argv) != 4:
    sys.exit(__doc__)
AGENTS = sys.argv.pop()
MODEL = sys.argv[2]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "serve"))
from serve import Server  # noqa: E402
import e2e  # noqa: E402

T = e2e.Tally("serve: the programs Claude Code and Codex")
PROGRAMS = {"Claude Code": "claude_agent_sdk/_bundled/claude", "Codex": "codex_cli_bin/bin/codex"}
ASK = "Read the file a.py and tell me what add does."
SHORT = {"type": "object", "properties": {"does": {"enum": ["adds", "subtracts"]}},
         "required": ["does"], "additionalProperties": False}


def program(name):
    path = os.path.join(AGENTS, PROGRAMS[name])
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def only(body, tool, **values):
    """The same request, in which a tool takes these arguments alone."""
    for t in body["tools"]:
        if t.get("name") == tool:
            schema = {"type": "object", "properties": {k: {"enum": [v]} for k, v in values.items()},
                      "required": list(values), "additionalProperties": False}
            t["input_schema" if "input_schema" in t else "parameters"] = schema


class Relay(http.server.BaseHTTPRequestHandler):
    """Requests to the server on `port`; seen: what was asked and the status of the answer."""
    protocol_version = "HTTP/1.1"
    port, seen, file = 0, [], ""

    def changed(self, body):
        """The same request for a small model: the tool by name first, then a short answer."""
        again = any(part in json.dumps(body) for part in ('"tool_result"', "function_call_output"))
        if not again:
            only(body, "Read", file_path=self.file)
            only(body, "exec_command", cmd="cat a.py")
        if "messages" in self.path:
            body["max_tokens"] = min(body["max_tokens"], 300)
            body["temperature"] = 0
            body["tool_choice"] = {"type": "none"} if again else {"type": "tool", "name": "Read"}
            if again:
                body["output_config"] = {"format": {"type": "json_schema", "schema": SHORT}}
        else:
            body["max_output_tokens"] = 300
            body["temperature"] = 0
            body["tool_choice"] = "none" if again else {"type": "function", "name": "exec_command"}
            if again:
                body["text"] = {"format": {"type": "json_schema", "name": "a", "schema": SHORT}}
        return body

    def relay(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else {}
        ask = dict(body)
        if "input" in body or "messages" in body and "count_tokens" not in self.path:
            data = json.dumps(self.changed(body)).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        head = {k: v for k, v in self.headers.items()
                if k.lower() not in ("host", "content-length", "connection")}
        c.request(self.command, self.path, data or None, head)
        r = c.getresponse()
        self.send_response(r.status)
        self.send_header("Content-Type", r.getheader("Content-Type"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while part := r.read1(65536):
            self.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.seen.append((self.path, ask, r.status))

    do_GET = do_POST = do_HEAD = relay

    def log_message(self, *_):
        pass


def run(name, args, url, folder):
    """(exit status, the events that the program printed, its last words)"""
    home = os.path.join(folder, name.replace(" ", ""))
    work = os.path.join(home, "work")
    os.makedirs(os.path.join(home, ".codex"))
    os.makedirs(work)
    Relay.file = os.path.join(work, "a.py")
    with open(Relay.file, "w") as f:
        f.write("def add(a, b):\n    return a - b\n")
    with open(os.path.join(home, ".codex", "config.toml"), "w") as f:
        f.write(f'model = "small"\nmodel_provider = "sluice"\n[model_providers.sluice]\n'
                f'name = "sluice"\nbase_url = "{url}/v1"\nwire_api = "responses"\n')
    names = dict.fromkeys(("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                           "ANTHROPIC_SMALL_FAST_MODEL"), "small")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "OPENAI_"))}
    env.update(names, HOME=home, ANTHROPIC_BASE_URL=url, ANTHROPIC_AUTH_TOKEN="none",
               IS_SANDBOX="1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
    p = subprocess.run([program(name)] + args, cwd=work, env=env, capture_output=True, text=True,
                       timeout=900, stdin=subprocess.DEVNULL)
    events = [json.loads(ln) for ln in p.stdout.splitlines() if ln.startswith("{")]
    return p.returncode, events, (p.stderr or p.stdout)[-300:]


def need(name, good, what=""):
    T.check(name, None if good else str(what)[:400] or "not so")


def claude(url, folder):
    rc, events, words = run("Claude Code", ["-p", ASK, "--output-format", "stream-json",
                                            "--verbose", "--max-turns", "4"], url, folder)
    parts = [p for e in events if e.get("type") in ("assistant", "user")
             for p in e["message"]["content"] if isinstance(p, dict)]
    call = next((p for p in parts if p["type"] == "tool_use"), {})
    need("Claude Code: a call of its tool", call.get("name") == "Read"
         and call["input"] == {"file_path": Relay.file}, parts)
    need("Claude Code: whose result it sends back", any(
        p["type"] == "tool_result" and p["tool_use_id"] == call.get("id")
        and "return a - b" in str(p["content"]) for p in parts), parts)
    last = events[-1] if events else {}
    need("Claude Code: and ends well", rc == 0 and last.get("subtype") == "success"
         and not last["is_error"] and json.loads(last["result"])["does"], (rc, last, words))
    usage = last.get("usage", {})
    need("Claude Code: the second turn found the first in the prefix cache",
         usage.get("cache_read_input_tokens", 0) > 1000, usage)


def codex(url, folder):
    rc, events, words = run("Codex", [
        "exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox",
        ASK], url, folder)
    items = [e["item"] for e in events if e.get("type") == "item.completed"]
    need("Codex: a call of its tool, whose result it sends back", any(
        i.get("type") == "function_call_output" and "return a - b" in i["output"]
        for _, b, _ in Relay.seen
        for i in b.get("input", []) if isinstance(i, dict)), items)
    said = [i.get("text", "") for i in items if i["type"] == "agent_message"]
    need("Codex: and ends well", rc == 0 and said and json.loads(said[-1])["does"],
         (rc, said, words))
    usage = next((e["usage"] for e in events if e.get("type") == "turn.completed"), {})
    need("Codex: the second turn found the first in the prefix cache",
         usage.get("cached_input_tokens", 0) > 1000, usage)


def main():
    relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{relay.server_address[1]}"
    with Server("-m", MODEL, "--alias", "small", "--ctx", "32768") as s, \
            tempfile.TemporaryDirectory() as folder:
        Relay.port = s.port
        for one in (claude, codex):
            one(url, folder)
            bad = [(p, st) for p, _, st in Relay.seen if st >= 400 and "/v1/models" not in p]
            need(f"{one.__name__}: no request was refused", not bad, bad)
        need("exit", s.stop() == 0)


main()
T.exit()

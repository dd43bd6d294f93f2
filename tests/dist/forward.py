# SPDX-License-Identifier: Apache-2.0
"""Hands bytes on, both ways, as ssh -L does, without its encryption: for tests whose link between
two machines (nodes.py) is between two sockets of one.

  forward.py FROM TO      unix:PATH or ADDRESS:PORT
"""
import socket
import sys
import threading


def place(text):
    if text.startswith("unix:"):
        return socket.AF_UNIX, text[5:]
    host, port = text.rsplit(":", 1)
    return socket.AF_INET, (host, int(port))


def end(*socks):
    for s in socks:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carry(a, b):
    buf = memoryview(bytearray(1 << 20))
    try:
        while n := a.recv_into(buf):
            b.sendall(buf[:n])
    except OSError:
        pass
    end(a, b)


def main():
    kind, at = place(sys.argv[1])
    server = socket.socket(kind)
    if kind == socket.AF_INET:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(at)
    server.listen(8)
    print("ready", flush=True)
    while True:
        near, _ = server.accept()
        kind, at = place(sys.argv[2])
        far = socket.socket(kind)
        try:
            far.connect(at)
        except OSError:
            near.close()
            continue
        for s in (near, far):
            if s.family == socket.AF_INET:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=carry, args=(a, b), daemon=True).start()


if __name__ == "__main__":
    main()

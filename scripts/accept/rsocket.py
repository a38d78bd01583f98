"""A TCP program in Python, for scripts/accept/rsockets: the server answers each connection with the digest of what came."""

import asyncio
import hashlib
import socket
import sys
import threading

CONTENT = bytes(range(251)) * 4000
CLIENTS = 3


def serve(host, port):
    listener = socket.create_server((host, port))
    for _ in range(CLIENTS):
        connection, _ = listener.accept()
        digest = hashlib.sha256()
        while data := connection.recv(50000):
            digest.update(data)
        connection.sendall(digest.hexdigest().encode())
        connection.close()


async def serve_asyncio(host, port):
    done = asyncio.Semaphore(0)

    async def answer(reader, writer):
        digest = hashlib.sha256()
        while data := await reader.read(50000):
            digest.update(data)
        writer.write(digest.hexdigest().encode())
        await writer.drain()
        writer.close()
        done.release()

    server = await asyncio.start_server(answer, host, port)
    for _ in range(CLIENTS):
        await done.acquire()
    server.close()
    # What was written leaves before the process ends.
    await asyncio.sleep(0.1)


def ask(host, port):
    for _ in range(CLIENTS):
        connection = socket.create_connection((host, port), timeout=20)
        assert connection.getpeername() == (host, port)
        sender = threading.Thread(target=lambda: (connection.sendall(CONTENT), connection.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = b""
        while data := connection.recv(1000):
            answer += data
        sender.join()
        connection.close()
        assert answer.decode() == hashlib.sha256(CONTENT).hexdigest(), answer
    print("content is right")


what, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if what == "serve":
    serve(host, port)
elif what == "serve-asyncio":
    asyncio.run(serve_asyncio(host, port))
else:
    ask(host, port)

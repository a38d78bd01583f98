"""Children of Python's multiprocessing (start method fork) and of subprocess, under a parent with a device of its own.

Argument: the library with the verbs. Prints "right" if all is as it must be."""

import ctypes
import errno
import multiprocessing
import subprocess
import sys
import threading

verbs = ctypes.CDLL(sys.argv[1], use_errno=True)
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_create_comp_channel"):
    getattr(verbs, name).restype = ctypes.c_void_p


def opened():
    """A context of the first device."""
    devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
    context = verbs.ibv_open_device(ctypes.c_void_p(devices[0]))
    assert context, "the device can be opened"
    return ctypes.c_void_p(context)


context = opened()
domain = ctypes.c_void_p(verbs.ibv_alloc_pd(context))


def works(number):
    """What a worker does: nothing with what it inherited, and all with its own device."""
    assert verbs.ibv_dealloc_pd(domain) == errno.EINVAL
    own = opened()
    own_domain = ctypes.c_void_p(verbs.ibv_alloc_pd(own))
    assert verbs.ibv_dealloc_pd(own_domain) == 0
    assert verbs.ibv_dealloc_pd(domain) == errno.EINVAL
    assert verbs.ibv_close_device(own) == 0
    return number * number


def busy(stop):
    """Another thread of the parent, which takes locks while it forks."""
    while not stop.is_set():
        channel = ctypes.c_void_p(verbs.ibv_create_comp_channel(context))
        assert channel and verbs.ibv_destroy_comp_channel(channel) == 0


def main():
    forks = multiprocessing.get_context("fork")
    stop = threading.Event()
    thread = threading.Thread(target=busy, args=(stop,))
    thread.start()
    with forks.Pool(3) as pool:
        assert pool.map(works, range(12)) == [number * number for number in range(12)]
    workers = [forks.Process(target=works, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    # By vfork(2) or posix_spawn(3), and fork(2).
    subprocess.run(["true"], check=True, close_fds=False)
    subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True, preexec_fn=lambda: None)
    stop.set()
    thread.join()
    assert verbs.ibv_dealloc_pd(domain) == 0 and verbs.ibv_close_device(context) == 0
    print("right")


if __name__ == "__main__":
    main()

"""Hostile programs. Each ends without an exception only if its attack succeeds.

`{home}`, `{folder}`, `{repository}`, `{port}`, `{name}` and `{secret}` are what a test has laid out
for them outside: places, a listening socket, and a text that nobody may read.
"""

TEST = """
def check(answer):
    assert answer == 42
check(solution())
"""
"""What a caller appends; the solution is wrong."""
WRONG = "def solution():\n    return 41\n"

GREED = {
    "loop": "while True: pass",
    "loop deaf to signals": """
import signal
for number in set(signal.Signals) - {{signal.SIGKILL, signal.SIGSTOP}}:
    signal.signal(number, lambda *_: None)
while True: pass
""",
    "sleep": "import time; time.sleep(1e6)",
    "stop itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "fork bomb": """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    "forks without limit": """
import os, time
for _ in range(200):
    if os.fork() == 0: time.sleep(60)
""",
    "thread bomb": """
import threading, time
for _ in range(10_000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
    "10 GB": "x = bytearray(10 << 30)",
    "little by little": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "memory of many processes": """
import os, time
for _ in range(6):
    if os.fork() == 0:
        x = bytearray(b"x") * (40 << 20)
        time.sleep(60)
time.sleep(60)
""",
    "shared memory": "import os; os.memfd_create('x')",
    "flood of stdout": "while True: print('x' * 10_000)",
    "flood of stderr": "import os\nwhile True: os.write(2, b'x' * 10_000)",
    "full disk": """
for at in range(1_000):
    with open(str(at), "wb") as file: file.write(bytes(1 << 20))
""",
    "many files": "for at in range(100_000): open(str(at), 'w').close()",
    "huge file": "open('x', 'wb').write(bytes(9 << 20))",
    "sparse file": "open('x', 'wb').truncate(1 << 40)",
    "descriptors": "import os\nx = [os.open('.', 0) for _ in range(10_000)]",
    "raised limits": """
import resource
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
""",
    "recursion": """
import sys; sys.setrecursionlimit(10**6)
x = []
for _ in range(10**5): x = [x]
repr(x)
""",
    "huge message": "raise ValueError('x' * 10**7)",
    "many exceptions": "raise ExceptionGroup('x' * 10**5, [ValueError('y' * 10**5)] * 1_000)",
    "message that never comes": """
class Slow(Exception):
    def __str__(self):
        while True: pass
raise Slow
""",
    "message that exits": """
import os
class Gone(Exception):
    def __str__(self): os._exit(0)
raise Gone
""",
    "memory that nobody counts": """
import mmap
for _ in range(64):
    shared = mmap.mmap(-1, 16 << 20)
    shared[:] = bytes(len(shared))
    shared.madvise(mmap.MADV_DONTNEED)
""",
    "memory of zeros": """
import mmap
with open("/dev/zero", "r+b") as zeros: mmap.mmap(zeros.fileno(), 16 << 20)
""",
    "visitors that nobody lets in": """
import socket
box = socket.socket(socket.AF_UNIX)
box.bind("box")
box.listen(4096)
for _ in range(4096):
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.setblocking(False)
        try:
            visitor.connect("box")
            while True: visitor.send(bytes(1 << 16))
        except BlockingIOError: pass
""",
    "letters that nobody reads": """
import socket, time
boxes = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(50)]
for at, box in enumerate(boxes):
    box.bind(str(at))
    for _ in range(11):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try: sender.sendto(bytes(200_000), str(at))
            except BlockingIOError: pass
time.sleep(60)
""",
    "sockets in letters": """
import array, socket, time
end, mail = socket.socketpair()
for _ in range(300):
    pair = socket.socketpair()
    for each in pair:
        each.setblocking(False)
        try:
            while True: each.send(bytes(1 << 16))
        except BlockingIOError: pass
    rights = array.array("i", [each.fileno() for each in pair])
    try: end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except OSError: break
    for each in pair: each.close()
time.sleep(60)
""",
    "larger buffers": """
import socket
for each in socket.socketpair(): each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
""",
}

REACH = {
    "write to home": "open({home!r} + '/written', 'w').write('x')",
    "write to the host's /tmp": "open({folder!r} + '/written', 'w').write('x')",
    "write to the repository": "open({repository!r} + '/written', 'w').write('x')",
    "write to Python": "import os; open(os.__file__, 'a').write('x')",
    "write to the root": "open('/written', 'w').write('x')",
    "make the root writable": "import os; os.chmod('/', 0o777)",
    "remove Python": "import os, shutil; shutil.rmtree(os.path.dirname(os.__file__))",
    "environment": "import os; assert {secret!r} in os.environ.values()",
    "environment of C": "import os; assert os.getenv('PLANTED') or os.environb",
    "secret in home": "assert open({home!r} + '/secret').read() == {secret!r}",
    "secret in a folder": "assert open({folder!r} + '/secret').read() == {secret!r}",
    "passwords": "assert open('/etc/shadow').read() and open('/etc/passwd').read()",
    "symbolic link": """
import os
os.symlink({folder!r}, 'link')
assert open('link/secret').read() == {secret!r}
""",
    "dots": "assert open('../' * 20 + {folder!r} + '/secret').read() == {secret!r}",
    "hard link": "import os; os.link(os.__file__, 'link')",
    "other processes": "import os; assert os.listdir('/proc')",
    "memory file": "open('/proc/self/mem', 'rb').read(1)",
    "chroot": "import os; os.mkdir('x'); os.chroot('x')",
    "device": "import os, stat; os.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(8, 0))",
    "executable memory from a file": """
import mmap
with open('code', 'wb+') as file:
    file.write(bytes(4096)); file.flush()
    mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
""",
    "local socket": "import socket; socket.create_connection(('127.0.0.1', {port}), 1).send(b'x')",
    "outside socket": "import socket; socket.create_connection(('1.1.1.1', 53), 1)",
    "datagram": """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53))
""",
    "socket to a machine's host": "import socket; socket.socket(40, socket.SOCK_STREAM)",
    "pair of sockets to the kernel": "import socket; socket.socketpair(16, socket.SOCK_RAW)",
    "socket to the kernel": "import socket; socket.socket(16, socket.SOCK_RAW)",
    "abstract socket": "import socket; socket.socket(socket.AF_UNIX).connect({name!r})",
    "host name": "import socket; assert socket.gethostname() != 'program'",
    "root": "import os; os.setuid(0)",
    "root's group": "import os; os.setgid(0)",
    "groups": "import os; os.setgroups([0])",
    "identity": "import os; assert 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid())",
    "another executable": "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])",
    "shell": "import os; assert os.system('true') == 0",
    "higher priority": "import os; os.nice(-5)",
}

FAKES = {
    "sys.exit": "import sys; sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "os._exit": "import os; os._exit(0)",
    "exit in a thread": """
import os, threading, time
threading.Thread(target=os._exit, args=(0,), daemon=True).start()
time.sleep(1)
""",
    "atexit": "import atexit, os; atexit.register(os._exit, 0)",
    "kill itself": "import os; os.kill(os.getpid(), 9)",
    "abort": "import os; os.abort()",
    "execv": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', ''])",
    "closed stdout": "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdout = None",
    "closed descriptors": "import os; os.closerange(0, 64)",
    "other AssertionError": """
import builtins
class Nothing(BaseException): pass
builtins.AssertionError = builtins.Exception = builtins.BaseException = Nothing
AssertionError = Nothing
""",
    "other builtins": "import builtins\nfor name in dir(builtins): setattr(builtins, name, None)",
    "guesses": """
import os
for descriptor in range(64):
    for guess in (b"passed", b"begun", bytes(32), b'{{"passed": true}}', b"passed\\n"):
        try: os.write(descriptor, guess)
        except OSError: pass
""",
    "frames": """
import os, sys
frame, found = sys._getframe(), []
while frame:
    found += [*frame.f_locals.values(), *frame.f_globals.values()]
    frame = frame.f_back
for value in found:
    if isinstance(value, bytes | bytearray | str):
        for descriptor in range(64):
            try: os.write(descriptor, value if isinstance(value, bytes) else value.encode())
            except OSError: pass
""",
    "collector": """
import gc, os, sys
found = [*gc.get_objects(), *gc.get_referents(sys._getframe(), sys._getframe().f_back)]
for value in [*found, *(one for many in found for one in gc.get_referents(many))]:
    if type(value) is bytes and len(value) == 32:
        for descriptor in range(64):
            try: os.write(descriptor, value)
            except OSError: pass
""",
    "secret read again": """
import os
for descriptor in range(3, 64):
    try:
        os.set_blocking(descriptor, False)
        os.write(descriptor, os.read(descriptor, 32))
    except OSError: pass
""",
    "runner's own functions": """
import sys
names = sys._getframe().f_back.f_locals
names["write"](names["channel"], bytes(32))
""",
    "runner's variables": """
import sys
names = sys._getframe().f_back.f_locals
for name in ("tell", "leave"): names[name] = lambda *_: None
""",
    "tracer": """
import sys
def cheat(frame, event, argument):
    if frame.f_code.co_name == "check": frame.f_locals["answer"] = 42
    return cheat
sys.settrace(cheat)
""",
    "profiler": """
import sys
def cheat(frame, event, argument):
    if frame.f_code.co_name == "check": frame.f_locals["answer"] = 42
sys.setprofile(cheat)
""",
    "the real profiler": """
import importlib.machinery, sys, _imp
again = _imp.create_builtin(importlib.machinery.ModuleSpec("sys", None))
again.setprofile(lambda *_: None)
""",
    "a name that lies": """
import importlib.machinery, importlib.util
class Name(str):
    def rpartition(self, mark): return "", "", "math"
    def startswith(self, *_): return False
names = "_testcapi", "_xxsubinterpreters", "_interpreters"
found = filter(None, map(importlib.machinery.PathFinder.find_spec, names))
spec = next(found)
spec.name = Name(spec.name)
importlib.util.module_from_spec(spec)
""",
    "the real tracer": """
import importlib.machinery, sys, _imp
again = _imp.create_builtin(importlib.machinery.ModuleSpec("sys", None))
again.settrace(lambda *_: None)
""",
    "monitoring": """
import sys
monitoring = sys.monitoring
monitoring.use_tool_id(1, "x")
monitoring.register_callback(1, monitoring.events.LINE, print)
""",
    "ctypes": "import ctypes; ctypes.pythonapi.Py_Exit(0)",
    "ctypes of the runner": """
(found,) = [kind for kind in object.__subclasses__() if kind.__name__ == "CDLL"]
found(None)._exit(0)
""",
    "interpreter's tests": "import _testcapi",
    "another interpreter": """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(), "import ctypes")
""",
    "guard taken off": """
import sys
guard = sys._getframe().f_back.f_globals["_guard"]
guard.__globals__["PermissionError"] = lambda words: None
guard.__code__ = (lambda *_: None).__code__
""",
    "child goes on": "import os\nif os.fork(): os._exit(0)",
    "child goes on, parent waits": """
import os
child = os.fork()
if child: os.waitpid(child, 0); os._exit(0)
""",
    "parent killed": """
import os, signal, time
if os.fork() == 0: os.kill(os.getppid(), signal.SIGKILL)
else: time.sleep(60)
""",
    "signals": """
import os, signal, time
for target in (os.getppid(), 1, -1):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGKILL):
        try: os.kill(target, number)
        except OSError: pass
time.sleep(0.1)
""",
    "exception hook": "import sys; sys.excepthook = lambda *_: None",
    "other exit": "import os, sys; os._exit = sys.exit = lambda *_: None",
    "main guard": "if __name__ == '__main__': raise SystemExit",
}
"""What stands before the failing test; none of them may make it a pass."""

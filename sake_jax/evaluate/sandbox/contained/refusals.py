"""System calls that programs are refused, as a seccomp filter.

Namespaces bound what a program reaches; this bounds what it may ask the kernel for: nothing that
makes new namespaces or mounts, looks into other processes, holds memory that no limit counts,
starts another executable, or reaches out in a way that namespaces do not cover.
"""

import errno
import platform
import struct

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel numbers them, for the machines that the numbers below are known of."""

NOWHERE = 0xFFFF
"""The number of a call that an architecture does not have."""
REFUSED = {  # x86_64, aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, NOWHERE),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setns": (308, 268),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}
CLONE, CLONE3, MMAP = (56, 220), (435, 435), (9, 222)
SOCKETS = ((41, 198), (53, 199))
"""`socket` and `socketpair`."""
FAMILIES = (1, 2, 10)
"""Of sockets that a network namespace keeps inside: UNIX and the internet's. Those to the host of
a virtual machine, for one, it does not."""
SET_OPTION, WHOLE_SOCKET = (54, 208), 1
SEND_BUFFER, SEND_BUFFER_FORCED = 7, 32
"""Options of a whole socket: how much it may hold that nobody has read. The keeper counts sockets,
and takes each for as large as they begin."""
NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces."""
SHARED, ANONYMOUS = 0x01, 0x20
"""The flags of mmap for memory that processes share and that no file holds: once it is out of
sight of all of them, nothing counts it as theirs."""
X32 = 0x40000000
"""x86_64 knows a second numbering of its calls, from here on."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Bytes into what it sees:
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT = 0, 4, 16, 24, 32
FOURTH_ARGUMENT = 40
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def instructions() -> bytes:
    """The filter for this machine."""
    which = tuple(ARCHITECTURES).index(platform.machine())
    steps = [
        _step(LOAD, ARCHITECTURE),
        _step(EQUAL, ARCHITECTURES[platform.machine()], skip_if=1),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
        *_answer(AT_LEAST, X32, KILL),
        # Its flags are out of a filter's sight; libc falls back to clone.
        *_answer(EQUAL, CLONE3[which], ERROR | errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        steps += _answer(EQUAL, numbers[which], ERROR | errno.EPERM)
    for numbers in SOCKETS:
        steps += _call(numbers[which], _families())
    steps += _call(SET_OPTION[which], _small_buffers())
    steps += _call(MMAP[which], _unshared_memory())
    steps += _call(CLONE[which], _same_namespaces())
    return b"".join([*steps, _step(RETURN, ALLOW)])


def _call(number: int, steps: list[bytes]) -> list[bytes]:
    """What is asked about one call; the steps end with an answer whatever happens."""
    return [_step(EQUAL, number, skip_unless=len(steps)), *steps]


def _families() -> list[bytes]:
    return [
        _step(LOAD, FIRST_ARGUMENT),
        *(_step(EQUAL, each, skip_if=len(FAMILIES) - at) for at, each in enumerate(FAMILIES)),
        _step(RETURN, ERROR | errno.EAFNOSUPPORT),
        _step(RETURN, ALLOW),
    ]


def _small_buffers() -> list[bytes]:
    return [
        _step(LOAD, SECOND_ARGUMENT),
        _step(EQUAL, WHOLE_SOCKET, skip_unless=5),
        _step(LOAD, THIRD_ARGUMENT),
        *_answer(EQUAL, SEND_BUFFER, ERROR | errno.EPERM),
        *_answer(EQUAL, SEND_BUFFER_FORCED, ERROR | errno.EPERM),
        _step(RETURN, ALLOW),
    ]


def _unshared_memory() -> list[bytes]:
    return [
        _step(LOAD, FOURTH_ARGUMENT),
        _step(ANY_BIT, ANONYMOUS, skip_unless=2),
        *_answer(ANY_BIT, SHARED, ERROR | errno.EPERM),
        _step(RETURN, ALLOW),
    ]


def _same_namespaces() -> list[bytes]:
    return [
        _step(LOAD, FIRST_ARGUMENT),
        *_answer(ANY_BIT, NAMESPACES, ERROR | errno.EPERM),
        _step(RETURN, ALLOW),
    ]


def _answer(test: int, value: int, answer: int) -> list[bytes]:
    return [_step(test, value, skip_unless=1), _step(RETURN, answer)]


def _step(code: int, value: int, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    return struct.pack("HBBI", code, skip_if, skip_unless, value)

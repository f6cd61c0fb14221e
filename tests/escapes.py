"""What native code tries to get out of its process: each body returns 0 where it succeeded, else errno.

They are compiled into one library, which is called in a runner and, to show that each would succeed, in a plain
process.
"""

from __future__ import annotations

HEADERS = r"""
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TRY(call) return (call) < 0 ? errno : 0
static int reads(const char* path) {
    char byte; const int fd = open(path, O_RDONLY);
    if (fd < 0) return errno;
    const int got = read(fd, &byte, 1) < 0 ? errno : 0;
    close(fd); return got;
}
static int writes(const char* path) {
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) return errno;
    close(fd); unlink(path); return 0;
}
static int of_parent(const char* file) {
    char path[64]; snprintf(path, 64, "/proc/%d/%s", getppid(), file);
    return reads(path);
}
static int opens(int family, int kind) {
    const int fd = socket(family, kind, 0); if (fd < 0) return errno;
    close(fd); return 0;
}
static int reaped(int child) { if (child < 0) return errno; waitpid(child, nullptr, 0); return 0; }
static int names(const char* path, bool abstract) {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0); if (fd < 0) return errno;
    sockaddr_un to{}; to.sun_family = AF_UNIX; snprintf(to.sun_path + abstract, 100, "%s", path);
    const socklen_t size = offsetof(sockaddr_un, sun_path) + abstract + strlen(path);
    const int failed = connect(fd, (sockaddr*)&to, size) ? errno : 0;
    close(fd); return failed;
}
static int tcp(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0); if (fd < 0) return errno;
    sockaddr_in to{}; to.sin_family = AF_INET; to.sin_port = htons(port); to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int failed = connect(fd, (sockaddr*)&to, sizeof to) ? errno : 0;
    close(fd); return failed;
}
"""

TRIES = {
    # Files. @SECRET@ is readable by the user and outside; @VICTIM@ lies in the runner's own kernel cache.
    "read a secret": 'return reads("@SECRET@");',
    "read /etc/passwd": 'return reads("/etc/passwd");',
    "read through /proc/self/root": 'return reads("/proc/self/root/@SECRET@");',
    "list the cache of all": 'DIR* d = opendir("@CACHE@"); if (!d) return errno; closedir(d); return 0;',
    "read another candidate's build": 'return reads("@OTHER@");',
    "write in the home directory": 'return writes("@HOME@/left");',
    "write in /tmp": 'return writes("/tmp/warpsmith-left");',
    "leave a file in /dev/shm": 'return writes("/dev/shm/warpsmith-left");',
    "write in its working directory": 'return writes("left");',
    "write in its kernel cache": 'return writes("@OWN@/left");',
    "make a directory in its kernel cache": 'const int r = mkdir("@OWN@/d", 0700); if (r) return errno;'
    ' rmdir("@OWN@/d"); return 0;',
    "cut a file that it may read": 'TRY(open("@VICTIM@", O_RDONLY | O_TRUNC));',
    "cut a file by name": 'TRY(truncate("@VICTIM@", 0));',
    "rename a file that it may read": 'TRY(rename("@VICTIM@", "@VICTIM@.gone") || rename("@VICTIM@.gone",'
    ' "@VICTIM@") ? -1 : 0);',
    "link a secret": 'const int r = link("@SECRET@", "@SECRET@.link"); if (r) return errno;'
    ' unlink("@SECRET@.link"); return 0;',
    "change a mode": 'TRY(chmod("@SECRET@", 0600));',
    "change an owner": 'TRY(chown("@SECRET@", getuid(), getgid()));',
    "change a time": 'TRY(utimensat(AT_FDCWD, "@SECRET@", nullptr, 0));',
    "set an attribute": 'TRY(setxattr("@SECRET@", "user.left", "1", 1, 0));',
    "watch a directory": "TRY(inotify_init1(0));",
    "map memory that no limit counts": 'TRY(memfd_create("hog", 0));',
    # Other processes.
    "read its parent's environment": 'return of_parent("environ");',
    "read its parent's memory map": 'return of_parent("maps");',
    "read the test's environment": 'return reads("/proc/@TEST@/environ");',
    "trace its parent": "if (ptrace(PTRACE_SEIZE, getppid(), 0, 0)) return errno;"
    " ptrace(PTRACE_DETACH, getppid(), 0, 0); return 0;",
    "read its parent's memory": "long a = 0; iovec v{&a, 8}; TRY(process_vm_readv(getppid(), &v, 1, &v, 1, 0));",
    "write its parent's memory": "static long a; iovec v{&a, 8}; TRY(process_vm_writev(getppid(), &v, 1, &v, 1, 0));",
    "signal its parent": "TRY(kill(getppid(), 0));",
    "signal the test": "TRY(kill(@TEST@, 0));",
    "signal a thread of its parent": "TRY(syscall(SYS_tkill, getppid(), 0));",
    "signal by pidfd": "TRY(syscall(SYS_pidfd_open, getppid(), 0));",
    "signal by a descriptor's owner": "int p[2]; pipe(p); TRY(fcntl(p[0], F_SETOWN, getppid()));",
    "limit its parent": "rlimit old; TRY(prlimit(getppid(), RLIMIT_CPU, nullptr, &old));",
    "slow its parent": "TRY(setpriority(PRIO_PROCESS, getppid(), 0));",
    "move its parent": "cpu_set_t all; sched_getaffinity(0, sizeof all, &all);"
    " TRY(sched_setaffinity(getppid(), sizeof all, &all));",
    "leave its core": "cpu_set_t all; sched_getaffinity(0, sizeof all, &all);"
    " TRY(sched_setaffinity(0, sizeof all, &all));",
    "take turns of its own": "sched_param one{0}; TRY(sched_setscheduler(0, SCHED_BATCH, &one));",
    "go on though it was stopped": "TRY(kill(getpid(), SIGCONT));",
    "go on by a timer": "sigevent on{}; on.sigev_notify = SIGEV_SIGNAL; on.sigev_signo = SIGCONT; timer_t timer;"
    " TRY(timer_create(CLOCK_MONOTONIC, &on, &timer));",
    "take a descriptor": "TRY(syscall(SYS_pidfd_getfd, 0, 0, 0) < 0 && errno == EBADF ? 0 : -1);",
    # The network.
    "open a TCP socket": "return opens(AF_INET, SOCK_STREAM);",
    "open a UDP socket": "return opens(AF_INET, SOCK_DGRAM);",
    "open a TCP socket of IPv6": "return opens(AF_INET6, SOCK_STREAM);",
    "open a netlink socket": "return opens(AF_NETLINK, SOCK_RAW);",
    "open a packet socket": "return opens(AF_PACKET, SOCK_RAW);",
    "open a Unix datagram socket": "return opens(AF_UNIX, SOCK_DGRAM);",
    "connect to a TCP server": "return tcp(@PORT@);",
    "connect to a Unix server by path": 'return names("@SERVER@", false);',
    "connect to an abstract Unix server": 'return names("@ABSTRACT@", true);',
    # New processes.
    "fork": "const int c = fork(); if (c == 0) _exit(0); return reaped(c);",
    "fork by clone": "const int c = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (c == 0) _exit(0); return reaped(c);",
    "fork by clone3": "clone_args a{}; a.exit_signal = SIGCHLD; const int c = syscall(SYS_clone3, &a, sizeof a);"
    " if (c == 0) _exit(0); return reaped(c);",
    "spawn": 'char* argv[] = {(char*)"true", nullptr}; pid_t c; const int e ='
    ' posix_spawn(&c, "/bin/true", nullptr, nullptr,'
    " argv, nullptr); if (e) return e; return reaped(c);",
    "become another program": 'execl("/bin/true", "true", nullptr); return errno;',
    "leave its session": "TRY(setsid());",
    "leave its group": "TRY(setpgid(0, 0));",
    # The kernel's doors.
    "mount": 'unshare(CLONE_NEWNS); mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);'
    ' TRY(mount("none", "/mnt", "tmpfs", 0, nullptr));',
    "make a user namespace": "TRY(unshare(CLONE_NEWUSER));",
    "make a network namespace": "TRY(unshare(CLONE_NEWNET));",
    "enter a namespace": 'TRY(setns(open("/proc/self/ns/net", O_RDONLY), 0));',
    "change its root": 'TRY(chroot("/"));',
    "use a keyring": "TRY(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1));",
    "share memory by System V": "const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); if (id <"
    " 0) return errno;"
    " shmctl(id, IPC_RMID, nullptr); return 0;",
    # What holds it.
    "outlive its parent": "TRY(prctl(PR_SET_PDEATHSIG, 0));",
    "show its memory": "TRY(prctl(PR_SET_DUMPABLE, 1));",
    "adopt": "TRY(prctl(PR_SET_CHILD_SUBREAPER, 1));",
    "be counted as root": "TRY(setresuid(geteuid(), geteuid(), geteuid()));",
}
UNSURE = {
    "use io_uring": "char p[256] = {}; TRY(syscall(SYS_io_uring_setup, 1, p));",
    "count events": "perf_event_attr a{}; a.size = sizeof a; a.type = PERF_TYPE_SOFTWARE;"
    " TRY(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));",
    "load a program into the kernel": "char a[128] = {}; TRY(syscall(SYS_bpf, 0, a, sizeof a));",
    "handle page faults": "TRY(syscall(SYS_userfaultfd, 1));",
    "open by handle": "TRY(syscall(SYS_open_by_handle_at, -1, nullptr, 0));",
    "load a module": "TRY(syscall(SYS_init_module, nullptr, 0, nullptr));",
    "set the clock": "TRY(syscall(SYS_clock_settime, CLOCK_REALTIME, nullptr));",
}
"""Not everywhere possible without a sandbox either."""

HONEST = {
    "start a thread": "pthread_t t; const int e = pthread_create(&t, nullptr, [](void*) ->"
    " void* { return nullptr; }, nullptr);"
    " if (e) return e; return pthread_join(t, nullptr);",
    "run OpenMP": "int sum = 0;\n#pragma omp parallel for reduction(+ : sum) num_threads(4)\n"
    "for (int i = 0; i < 100; i++) sum += i;\n return sum == 4950 ? 0 : EINVAL;",
    "map memory": "void* p = mmap(nullptr, 1 << 24, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
    " if (p == MAP_FAILED) return errno; return munmap(p, 1 << 24) ? errno : 0;",
    "map shared memory": "void* p = mmap(nullptr, 1 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);"
    " if (p == MAP_FAILED) return errno; return munmap(p, 1 << 20) ? errno : 0;",
    "read the processor's description": 'return reads("/proc/cpuinfo");',
    "read its own memory map": 'return reads("/proc/self/maps");',
    "read the system's libraries": 'return reads("/usr/bin/env");',
    "draw random bytes": 'return reads("/dev/urandom");',
    "write to nowhere": 'TRY(open("/dev/null", O_WRONLY));',
    "signal itself": "return kill(getpid(), 0) ? errno : 0;",
    "read the clock": "timespec t; return clock_gettime(CLOCK_MONOTONIC, &t) ? errno : 0;",
    "name itself": 'return prctl(PR_SET_NAME, "worker") ? errno : 0;',
    "pair sockets": "int p[2]; if (socketpair(AF_UNIX, SOCK_STREAM, 0, p)) return errno;"
    " close(p[0]); close(p[1]); return 0;",
}

ALL = TRIES | UNSURE | HONEST
NUMBER = {name: number for number, name in enumerate(ALL)}


def library(places: dict[str, str]) -> str:
    """C++ source of `probe(which, errno_out)`, with each @NAME@ replaced by its entry in `places`."""
    functions = "\n".join(f"static int try_{NUMBER[name]}() {{ {body} }}" for name, body in ALL.items())
    cases = "\n".join(f"case {number}: *out = try_{number}(); break;" for number in NUMBER.values())
    for word, value in places.items():
        functions = functions.replace(f"@{word}@", value)
    probe = f'extern "C" void probe(const int64_t* which, int64_t* out) {{ switch (*which) {{ {cases} }} }}'
    return f"{HEADERS}\n{functions}\n{probe}\n"

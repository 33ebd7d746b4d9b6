/* Loaded before the C library: counts the operations by which this process changes files below one
 * folder, and kills it at a chosen one: before it, or in the middle of what it writes.
 *
 * The counters are shared with processes that are forked later, so that the parent of a killed one
 * can read where it ended. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
  long at;    /* the operation to be killed at, from 1; 0 for none */
  long half;  /* whether a write is cut in the middle, not before it begins */
  long count; /* operations so far */
  long wrote; /* whether the one at which it was killed writes bytes */
  char name[32];
  char path[PATH_MAX];
};

static struct record *record;
static char folder[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
  record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

struct record *kills_record(void) { return record; }
void kills_watch(const char *path) { snprintf(folder, sizeof folder, "%s", path); }

/* The C library's own function of that name. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int inside(const char *path) {
  size_t size = strlen(folder);
  return size && !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}

static int opened_inside(int file, char *path) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  ssize_t size = syscall(SYS_readlink, name, path, PATH_MAX - 1);
  path[size > 0 ? size : 0] = 0;
  return inside(path);
}

static int path_inside(int at, const char *given, char *path) {
  if (!*folder || !given) return 0;
  if (given[0] == '/') {
    snprintf(path, PATH_MAX, "%s", given);
  } else {
    char base[PATH_MAX];
    if (at == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
    else opened_inside(at, base);
    if (snprintf(path, PATH_MAX, "%s/%s", base, given) < 0) return 0;
  }
  return inside(path);
}

static __attribute__((noreturn)) void end(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/* Counts one operation; returns whether the process must be killed in the middle of it. */
static int count(const char *name, const char *path, int writes) {
  if (__sync_add_and_fetch(&record->count, 1) != record->at) return 0;
  record->wrote = writes;
  snprintf(record->name, sizeof record->name, "%s", name);
  snprintf(record->path, sizeof record->path, "%s", path);
  if (writes && record->half) return 1;
  end();
}

#define ON_PATH(name, at, given) do { char path_[PATH_MAX]; \
  if (path_inside(at, given, path_)) count(name, path_, 0); } while (0)
#define ON_FILE(name, file) do { char path_[PATH_MAX]; \
  if (*folder && opened_inside(file, path_)) count(name, path_, 0); } while (0)

static void opening(const char *name, int at, const char *given, int flags) {
  char path[PATH_MAX];
  int changes = (flags & O_TRUNC) ||
                ((flags & O_CREAT) && path_inside(at, given, path) && access(path, F_OK));
  if (changes) ON_PATH(name, at, given);
}

#define MODE(last) mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { \
  va_list rest; va_start(rest, last); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *p, int flags, ...) { MODE(flags); opening("open", AT_FDCWD, p, flags); return REAL(open)(p, flags, mode); }
int open64(const char *p, int flags, ...) { MODE(flags); opening("open", AT_FDCWD, p, flags); return REAL(open64)(p, flags, mode); }
int openat(int d, const char *p, int flags, ...) { MODE(flags); opening("openat", d, p, flags); return REAL(openat)(d, p, flags, mode); }
int openat64(int d, const char *p, int flags, ...) { MODE(flags); opening("openat", d, p, flags); return REAL(openat64)(d, p, flags, mode); }
int creat(const char *p, mode_t mode) { ON_PATH("creat", AT_FDCWD, p); return REAL(creat)(p, mode); }
FILE *fopen(const char *p, const char *m) { if (*m != 'r') ON_PATH("fopen", AT_FDCWD, p); return REAL(fopen)(p, m); }
FILE *fopen64(const char *p, const char *m) { if (*m != 'r') ON_PATH("fopen", AT_FDCWD, p); return REAL(fopen64)(p, m); }

/* What writes bytes may also be killed when half of them are written. */
#define WRITES(name, file, parameters, half, all) \
  ssize_t name parameters { \
    char path[PATH_MAX]; \
    if (*folder && opened_inside(file, path) && count(#name, path, 1)) { REAL(name) half; end(); } \
    return REAL(name) all; \
  }
WRITES(write, f, (int f, const void *b, size_t n), (f, b, n / 2), (f, b, n))
WRITES(pwrite, f, (int f, const void *b, size_t n, off_t at), (f, b, n / 2, at), (f, b, n, at))
WRITES(pwrite64, f, (int f, const void *b, size_t n, off64_t at), (f, b, n / 2, at), (f, b, n, at))
WRITES(writev, f, (int f, const struct iovec *v, int n), (f, v, n / 2), (f, v, n))
WRITES(pwritev, f, (int f, const struct iovec *v, int n, off_t at), (f, v, n / 2, at), (f, v, n, at))
WRITES(sendfile, to, (int to, int f, off_t *at, size_t n), (to, f, at, n / 2), (to, f, at, n))
WRITES(copy_file_range, to, (int f, off64_t *a, int to, off64_t *b, size_t n, unsigned flags),
       (f, a, to, b, n / 2, flags), (f, a, to, b, n, flags))
int ftruncate(int file, off_t size) { ON_FILE("ftruncate", file); return REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { ON_FILE("ftruncate", file); return REAL(ftruncate64)(file, size); }
int truncate(const char *p, off_t size) { ON_PATH("truncate", AT_FDCWD, p); return REAL(truncate)(p, size); }
int rename(const char *a, const char *b) { ON_PATH("rename", AT_FDCWD, b); return REAL(rename)(a, b); }
int renameat(int d, const char *a, int e, const char *b) { ON_PATH("renameat", e, b); return REAL(renameat)(d, a, e, b); }
int renameat2(int d, const char *a, int e, const char *b, unsigned flags) { ON_PATH("renameat2", e, b); return REAL(renameat2)(d, a, e, b, flags); }
int link(const char *a, const char *b) { ON_PATH("link", AT_FDCWD, b); return REAL(link)(a, b); }
int linkat(int d, const char *a, int e, const char *b, int flags) { ON_PATH("linkat", e, b); return REAL(linkat)(d, a, e, b, flags); }
int symlink(const char *a, const char *b) { ON_PATH("symlink", AT_FDCWD, b); return REAL(symlink)(a, b); }
int unlink(const char *p) { ON_PATH("unlink", AT_FDCWD, p); return REAL(unlink)(p); }
int unlinkat(int d, const char *p, int flags) { ON_PATH("unlinkat", d, p); return REAL(unlinkat)(d, p, flags); }
int remove(const char *p) { ON_PATH("remove", AT_FDCWD, p); return REAL(remove)(p); }
int rmdir(const char *p) { ON_PATH("rmdir", AT_FDCWD, p); return REAL(rmdir)(p); }
int mkdir(const char *p, mode_t mode) { ON_PATH("mkdir", AT_FDCWD, p); return REAL(mkdir)(p, mode); }
int mkdirat(int d, const char *p, mode_t mode) { ON_PATH("mkdirat", d, p); return REAL(mkdirat)(d, p, mode); }

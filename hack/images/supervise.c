/* The first program of a supervised worker container: starts the agent from the same folder.
 *
 *     FOLDER/supervise COMMAND [ARGUMENT...]
 *
 * It is static and uses no C library, so it runs in every image. It only starts Python through
 * FOLDER's own dynamic linker:
 *
 *     FOLDER/ld.so --inhibit-cache --library-path FOLDER/lib --argv0 FOLDER/bin/python3
 *         FOLDER/bin/python3 -I -S -OO FOLDER/app supervise -- COMMAND [ARGUMENT...]
 *
 * Variables that control dynamic linkers (LD_PRELOAD is common in images for machine learning) are
 * for the worker and its C library. They are renamed here; the agent restores them for the worker.
 *
 * The process becomes a child subreaper, so that it gets orphans among its descendants even if it is
 * not the first process of its namespace (with shareProcessNamespace). The setting survives execve.
 */

typedef unsigned long size;

#if defined(__x86_64__)
enum { WRITE = 1, EXECVE = 59, EXIT = 60, PRCTL = 157 };
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#elif defined(__aarch64__)
enum { WRITE = 64, EXECVE = 221, EXIT = 93, PRCTL = 167 };
static long call(long number, long a, long b, long c)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
__asm__(".globl _start\n_start:\n mov x0, sp\n bl begin\n");
#else
#error "no system calls for this architecture"
#endif

enum { SPACE = 1 << 20, FIXED = 14, SET_CHILD_SUBREAPER = 36 };

static char text[4 * SPACE]; /* paths and renamed variables; the kernel has a similar limit */
static size used;
static char *words[SPACE / 8], *variables[SPACE / 8];

static void fail(const char *message)
{
    size length = 0;
    while (message[length])
        length++;
    call(WRITE, 2, (long)message, (long)length);
    call(EXIT, 126, 0, 0);
}

/* Returns the first `length` bytes of `head` and all of `tail`, in memory that is never freed. */
static char *joined(const char *head, size length, const char *tail)
{
    char *start = text + used;
    for (size i = 0; i < length; i++) {
        if (used + 2 > sizeof text)
            fail("supervise: the environment is too large\n");
        text[used++] = head[i];
    }
    for (; *tail; tail++) {
        if (used + 2 > sizeof text)
            fail("supervise: the environment is too large\n");
        text[used++] = *tail;
    }
    text[used++] = 0;
    return start;
}

__attribute__((used, noreturn)) void begin(long *stack)
{
    static const char aside[] = "JOBSETPY_SET_ASIDE_";
    long count = stack[0];
    char **arguments = (char **)(stack + 1), **environment = arguments + count + 1;
    size folder = 0, n = 0, v = 0;

    if (count < 1)
        fail("supervise: started without a name\n");
    for (size i = 0; arguments[0][i]; i++)
        if (arguments[0][i] == '/')
            folder = i;
    if (!folder)
        fail("supervise: must be started by its whole path\n");
    if (count + FIXED >= SPACE / 8)
        fail("supervise: too many arguments\n");
    char *python = joined(arguments[0], folder, "/bin/python3");
    words[n++] = joined(arguments[0], folder, "/ld.so");
    words[n++] = "--inhibit-cache";
    words[n++] = "--library-path";
    words[n++] = joined(arguments[0], folder, "/lib");
    words[n++] = "--argv0";
    words[n++] = python;
    words[n++] = python;
    words[n++] = "-I";
    words[n++] = "-S";
    words[n++] = "-OO";
    words[n++] = joined(arguments[0], folder, "/app");
    words[n++] = "supervise";
    words[n++] = "--";
    for (long i = 1; i < count; i++)
        words[n++] = arguments[i];
    for (; *environment; environment++) {
        char *each = *environment;
        if (v + 1 >= SPACE / 8)
            fail("supervise: too many variables\n");
        if ((each[0] == 'L' && each[1] == 'D' && each[2] == '_') ||
            (each[0] == 'G' && each[1] == 'L' && each[2] == 'I' && each[3] == 'B' &&
             each[4] == 'C' && each[5] == '_' && each[6] == 'T'))
            each = joined(aside, sizeof aside - 1, each);
        variables[v++] = each;
    }
    call(PRCTL, SET_CHILD_SUBREAPER, 1, 0);
    call(EXECVE, (long)words[0], (long)words, (long)variables);
    fail("supervise: cannot start ld.so in the agent's folder\n");
    __builtin_unreachable();
}

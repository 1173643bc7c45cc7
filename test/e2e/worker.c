/* A worker for tests of supervisor mode: says what it sees, saves when told to stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

int main(void)
{
    struct sigaction action;
    const char *path = getenv("LD_LIBRARY_PATH");
    FILE *file = fopen("/written", "w");
    int foreign = 0;

    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (char **each = environ; *each; each++)
        foreign += strncmp(*each, "JOBSET_AGENT_", 13) == 0;
    printf("user %d, root %s, libraries %s, pod %s, %d foreign variables\n", (int)getuid(),
           file ? "writable" : "read-only", path ? path : "unset", getenv("POD_NAME"), foreign);
    printf("worker started\n");
    while (!stopped)
        pause();
    printf("saved\n");
    return 143;
}

/* A worker for tests of supervisor mode: says what it sees, saves when told to stop. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("user %d, root %s, libraries %s\n", (int)getuid(), file ? "writable" : "read-only",
           path ? path : "unset");
    printf("worker started\n");
    while (!stopped)
        pause();
    printf("saved\n");
    return 143;
}

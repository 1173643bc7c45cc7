/* Process 1 of a pod's shared namespaces: waits, reaps orphans, and exits on SIGTERM or SIGINT. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int number)
{
    if (number != SIGCHLD)
        _exit(0);
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NOCLDSTOP};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    for (;;)
        pause();
}

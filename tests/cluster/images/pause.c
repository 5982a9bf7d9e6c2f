/* The process that holds a pod's namespaces, and the container of the examples: it waits, and reaps orphans. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}

/* Order of processes: a server takes the connections as they come, and thinks that the k-th one is that of client k. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 8 };

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(9);
}

/* Says its number, and gets that of whom the server takes it for. */
static int client(struct sockaddr_in server, char number)
{
	char got = 0;
	usleep(300 * (unsigned)number);
	int socket_ = socket(AF_INET, SOCK_STREAM, 0);
	need(!connect(socket_, (struct sockaddr *)&server, sizeof(server)), "connect");
	need(write(socket_, &number, 1) == 1, "write");
	need(read(socket_, &got, 1) == 1, "read");
	return got != number;
}

int main(void)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	need(!bind(listener, (struct sockaddr *)&own, sizeof(own)) && !listen(listener, CLIENTS), "listen");
	need(!getsockname(listener, (struct sockaddr *)&own, &length), "getsockname");
	for (char number = 0; number < CLIENTS; number++) {
		pid_t child = fork();
		need(child >= 0, "fork");
		if (!child)
			_exit(client(own, number));
	}
	for (char number = 0; number < CLIENTS; number++) {
		char said, answer = number; /* BUG */
		int connection = accept(listener, NULL, NULL);
		need(connection >= 0 && read(connection, &said, 1) == 1, "accept");
#ifdef FIXED
		answer = said;
#endif
		need(write(connection, &answer, 1) == 1, "write");
	}
	int mistaken = 0, status;
	while (wait(&status) > 0)
		mistaken += status != 0;
	if (mistaken)
		printf("%d clients were mistaken for others\n", mistaken);
	return mistaken != 0;
}

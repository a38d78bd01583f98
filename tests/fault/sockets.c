/* Connects a socket to itself at the address that it is given, and says the errno of each step. A step that
 * fails is tried again, twice at most. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <string.h>

static void said(const char *step, long outcome)
{
	printf("%s %d\n", step, outcome < 0 ? errno : 0);
}

/* Runs a step until it succeeds, three times at most. */
#define STEP(name, outcome, expression)                                 \
	for (int tries = 0; tries < 3; tries++) {                       \
		outcome = (expression);                                 \
		said(name, outcome);                                    \
		if (outcome >= 0)                                       \
			break;                                          \
	}

static void *serve(void *listener)
{
	char bytes[8];
	int one = raccept(*(int *)listener, NULL, NULL);
	if (one < 0 || rrecv(one, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes) ||
	    rsend(one, bytes, sizeof(bytes), 0) != sizeof(bytes))
		perror("the server");
	rrecv(one, bytes, 1, 0);
	rclose(one);
	return NULL;
}

int main(int count, char **arguments)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7471)};
	char bytes[8] = "message";
	pthread_t server;
	long listener = -1, one = -1, outcome = -1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count < 2 || inet_pton(AF_INET, arguments[1], &at.sin_addr) != 1)
		return 2;
	STEP("rsocket", listener, rsocket(AF_INET, SOCK_STREAM, 0));
	STEP("rbind", outcome, rbind(listener, (struct sockaddr *)&at, sizeof(at)));
	STEP("rlisten", outcome, rlisten(listener, 1));
	int descriptor = listener;
	if (outcome < 0 || pthread_create(&server, NULL, serve, &descriptor))
		return 1;
	STEP("rsocket", one, rsocket(AF_INET, SOCK_STREAM, 0));
	STEP("rconnect", outcome, rconnect(one, (struct sockaddr *)&at, sizeof(at)));
	STEP("rwrite", outcome, rwrite(one, bytes, sizeof(bytes)));
	STEP("rread", outcome, rread(one, bytes, sizeof(bytes)));
	said("rclose", rclose(one));
	pthread_join(server, NULL);
	return rclose(listener) || outcome != sizeof(bytes) || strcmp(bytes, "message");
}

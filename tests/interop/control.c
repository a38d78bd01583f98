/* The TCP connection beside the RDMA one. */
#include "interop.h"

#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* A peer that says nothing for so long has given up. */
#define SILENCE_SECONDS 90

static int prepared(int control)
{
	struct timeval silence = {.tv_sec = SILENCE_SECONDS};
	setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
	return control;
}

static struct addrinfo *addresses(const char *host, int port)
{
	char service[16];
	struct addrinfo wants = {.ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE, .ai_family = host ? AF_UNSPEC : AF_INET};
	struct addrinfo *found = NULL;
	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(host, service, &wants, &found)) {
		fprintf(stderr, "%s is no address\n", host ? host : "*");
		exit(2);
	}
	return found;
}

int listen_once(int port)
{
	struct addrinfo *at = addresses(NULL, port);
	int on = 1, listener = socket(at->ai_family, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, at->ai_addr, at->ai_addrlen) || listen(listener, 1)) {
		perror("listen");
		exit(2);
	}
	int control = accept(listener, NULL, NULL);
	close(listener);
	freeaddrinfo(at);
	if (control < 0) {
		perror("accept");
		exit(2);
	}
	return prepared(control);
}

int reach(const char *host, int port)
{
	struct addrinfo *at = addresses(host, port);
	int control = socket(at->ai_family, SOCK_STREAM, 0);
	if (connect(control, at->ai_addr, at->ai_addrlen)) {
		perror("connect");
		exit(2);
	}
	freeaddrinfo(at);
	return prepared(control);
}

bool say(int control, const void *bytes, size_t length)
{
	while (length > 0) {
		ssize_t said = send(control, bytes, length, MSG_NOSIGNAL);
		if (said <= 0)
			return false;
		bytes = (const char *)bytes + said;
		length -= said;
	}
	return true;
}

bool hear(int control, void *bytes, size_t length)
{
	while (length > 0) {
		ssize_t heard = recv(control, bytes, length, 0);
		if (heard <= 0)
			return false;
		bytes = (char *)bytes + heard;
		length -= heard;
	}
	return true;
}

uint64_t tell(struct side *s, uint64_t value)
{
	/* The first byte is never the one that says that a scenario was given up (see main.c). */
	uint8_t out[9] = {1}, in[9];
	memcpy(out + 1, &value, 8);
	CLAIM(say(s->control, out, sizeof(out)));
	CLAIM(hear(s->control, in, 1), "the peer is silent");
	if (in[0] != 1) {
		fprintf(stderr, "the peer has given up\n");
		longjmp(s->given_up, 2);
	}
	CLAIM(hear(s->control, in + 1, 8));
	memcpy(&value, in + 1, 8);
	return value;
}

void meet(struct side *s)
{
	uint64_t line = 0x6d656574;
	CLAIM(tell(s, line) == line, "the two sides have lost step");
}

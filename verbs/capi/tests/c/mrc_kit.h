/* Two processes that connect MRC queue pairs: what they tell each other, over TCP, and the claims of their tests. */
#include "expect.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pumice/mrc_ctl.h>
#include <sys/socket.h>

/* What a side tells the other one. */
struct side {
	union ibv_gid gid;
	uint64_t address;
	uint32_t qpn, psn, rkey, length;
};

/* Connects to the other process: `listens` waits for it at an address, the other one comes. */
__attribute__((unused)) static int meet(int listens, const char *address, int port)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
	CLAIM(inet_pton(AF_INET, address, &name.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	CLAIM(fd >= 0);
	if (listens) {
		CLAIM(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
		CLAIM(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0);
		int peer = accept(fd, NULL, NULL);
		CLAIM(peer >= 0);
		close(fd);
		return peer;
	}
	for (int attempt = 0; connect(fd, (struct sockaddr *)&name, sizeof(name)); attempt++) {
		CLAIM(attempt < 500);
		usleep(20000);
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	return fd;
}

/* Tells the other process something of a length, and returns what it told. */
__attribute__((unused)) static void exchange(int fd, const void *own, void *other, size_t length)
{
	CLAIM(write(fd, own, length) == (ssize_t)length);
	for (size_t had = 0; had < length;) {
		ssize_t more = read(fd, (char *)other + had, length - had);
		CLAIM(more > 0);
		had += more;
	}
}

/* Both sides are here. */
__attribute__((unused)) static void together(int fd)
{
	char own = 1, other = 0;
	exchange(fd, &own, &other, 1);
	CLAIM(other == 1);
}

/* The byte at a place of a message of a round. */
__attribute__((unused)) static uint8_t pattern(unsigned round, size_t place)
{
	return (uint8_t)(place * 31 + (place >> 8) * 7 + round * 101 + 3);
}

__attribute__((unused)) static void fill(uint8_t *bytes, size_t length, unsigned round)
{
	for (size_t place = 0; place < length; place++)
		bytes[place] = pattern(round, place);
}

__attribute__((unused)) static void holds(const uint8_t *bytes, size_t length, unsigned round)
{
	for (size_t place = 0; place < length; place++)
		if (bytes[place] != pattern(round, place)) {
			fprintf(stderr, "round %u: byte %zu of %zu is %u, not %u\n", round, place, length, bytes[place],
				pattern(round, place));
			exit(1);
		}
}

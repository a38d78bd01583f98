// What the key-value server and its clients agree upon.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1024, PROBES = 4 };

// A slot of the table, and the message of a put. A reader may meet half a change: then the sum is wrong.
struct slot {
	char key[32], value[92];
	uint32_t sum;
};

// Where the table is: the server tells it when it accepts a connection.
struct remote {
	uint64_t address;
	uint32_t rkey;
};

static inline void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static inline uint32_t hash(const char *bytes, size_t length)
{
	uint32_t hash = 2166136261;
	for (size_t k = 0; k < length; k++)
		hash = (hash ^ (unsigned char)bytes[k]) * 16777619;
	return hash;
}

static inline uint32_t sum_of(const struct slot *slot) { return hash(slot->key, offsetof(struct slot, sum)); }

static inline uint32_t place_of(const char *key) { return hash(key, strlen(key)) % SLOTS; }

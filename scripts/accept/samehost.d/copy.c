/* memcpy of blocks of 1 MiB, one after the other, from one buffer of 64 MiB to another, by one thread. Prints GB/s: what one
 * copy of each byte allows. */
#define _GNU_SOURCE
#include "samples.h"
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20)
#define BLOCKS 64

int main(int argc, char **argv)
{
    uint64_t limit_ns = duration_ns(argc, argv), copied = 0;
    char *from = shared_memory(BLOCKS * BLOCK_BYTES), *to = shared_memory(BLOCKS * BLOCK_BYTES);
    memset(from, 1, BLOCKS * BLOCK_BYTES);
    memset(to, 2, BLOCKS * BLOCK_BYTES);
    uint64_t begun = now_ns(), now;
    do {
        for (size_t block = 0; block < BLOCKS; block++)
            memcpy(to + block * BLOCK_BYTES, from + block * BLOCK_BYTES, BLOCK_BYTES);
        copied += BLOCKS * BLOCK_BYTES;
        now = now_ns();
    } while (now - begun < limit_ns);
    if (memcmp(from, to, BLOCKS * BLOCK_BYTES) != 0)
        abort();
    printf("%.3f\n", (double)copied / (double)(now - begun));
    return 0;
}

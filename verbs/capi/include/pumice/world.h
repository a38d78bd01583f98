/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program says to the world that it runs in ("pumice world"). Nothing has to be linked.
 *
 * In a world with a performance model ("pumice world --model") computing takes no time by itself, so that all
 * runs are alike. A program that computes between its messages says how long that takes on the machine that
 * it is written for:
 *
 *     multiply(a, b, c);
 *     PUMICE_COMPUTE(250000);  // 250 us
 *
 * Elsewhere nothing happens, but for a call of the kernel.
 */
#ifndef PUMICE_WORLD_H
#define PUMICE_WORLD_H

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>

/* Lets these nanoseconds pass for the calling thread. errno stays as it is. */
static inline void pumice_compute(uint64_t ns)
{
    int before = errno;

    /* An option that the kernel does not have: the world's supervisor takes it. */
    if (ns > 0)
        (void)prctl(0x70756d69, 4UL, (unsigned long)ns, 0UL, 0UL);
    errno = before;
}

#define PUMICE_COMPUTE(ns) pumice_compute(ns)

#endif

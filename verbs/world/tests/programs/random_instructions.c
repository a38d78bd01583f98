/* Prints random numbers that it has by instructions of the processor, if it has them. */
#include <cpuid.h>
#include <immintrin.h>
#include <stdio.h>

__attribute__((target("rdrnd"))) static void draw(void)
{
	unsigned int one = 0;
	unsigned long long two = 0;
	if (!_rdrand32_step(&one) || !_rdrand64_step(&two))
		puts("none");
	printf("%08x %016llx\n", one, two);
}

__attribute__((target("rdseed"))) static void seed(void)
{
	unsigned int one = 0;
	while (!_rdseed32_step(&one))
		;
	printf("%08x\n", one);
}

int main(void)
{
	unsigned int a, b = 0, c = 0, d;
	/* The instructions are answered also on a processor without them, where a program does not use them. */
	if (__get_cpuid(1, &a, &b, &c, &d))
		draw();
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
		seed();
	return 0;
}

/* Prints addresses of the stack and of the heap. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	void *heap = malloc(64);

	printf("%p %p %p\n", (void *)&argc, (void *)argv, heap);
	free(heap);
	return 0;
}

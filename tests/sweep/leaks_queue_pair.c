/* Wrong: if the queue pair cannot be connected, it is forgotten. */
#include "steps.h"

int main(void)
{
	struct all all;
	if (make_all(&all)) {
		if (all.qp)
			all.qp = NULL;
		give_back(&all);
		return 1;
	}
	return give_back(&all);
}

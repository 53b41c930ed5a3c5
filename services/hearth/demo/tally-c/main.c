/* `tally EXPRESSION...` prints what each comes to. */
#include <stdio.h>

#include "tally.h"

int main(int count, char **texts)
{
    for (int i = 1; i < count; i++) {
        double value;
        if (evaluate(texts[i], &value))
            printf("%s: no expression\n", texts[i]);
        else
            printf("%g\n", value);
    }
    return 0;
}

/* The tests. Each prints its name and how it went. */
#include <stdio.h>

#include "tally.h"

static int failed;

static void test(const char *name, const char *text, double expected)
{
    double value;
    int ok = !evaluate(text, &value) && value == expected;
    printf("test %s ... %s\n", name, ok ? "ok" : "FAILED");
    failed += !ok;
}

static void test_refused(const char *name, const char *text)
{
    double value;
    int ok = evaluate(text, &value) != 0;
    printf("test %s ... %s\n", name, ok ? "ok" : "FAILED");
    failed += !ok;
}

int main(void)
{
    test("multiplication_binds_before_addition", "1 + 2 * 3 - 4 / 2", 5);
    test("subtraction_groups_to_the_left", "10 - 4 - 3", 3);
    test("powers_group_to_the_right", "2 ^ 3 ^ 2", 512);
    test("a_power_binds_before_the_sign", "-2 ^ 2", -4);
    test("functions_can_be_nested", "max(1, sqrt(16), 3) + nextprime(10)", 15);
    test_refused("an_open_parenthesis_wants_closing", "(1 + 2");
    test_refused("a_division_by_zero_is_refused", "1 / 0");
    return failed != 0;
}

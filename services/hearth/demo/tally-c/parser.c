/* Evaluates while it parses, by precedence climbing. */
#include <math.h>
#include <string.h>

#include "tally.h"

/* How strongly a minus sign before a value binds. */
#define NEGATION 5
#define POWER_GROUPS_RIGHT 0

static int expression(struct lexer *lexer, int floor, double *value);

static int binding(char sign)
{
    switch (sign) {
    case '+': case '-': return 1;
    case '*': case '/': return 2;
    case '^': return 4;
    default: return 0;
    }
}

static int accept(struct lexer *lexer, char sign)
{
    if (lexer->next.kind != SIGN || lexer->next.sign != sign)
        return 0;
    lexer_advance(lexer);
    return 1;
}

static int call(struct lexer *lexer, const char *name, double *value)
{
    double more;
    if (!accept(lexer, '(') || expression(lexer, 0, value))
        return -1;
    if (!strcmp(name, "sqrt")) {
        *value = sqrt(*value);
    } else if (!strcmp(name, "nextprime")) {
        *value = next_prime((unsigned)*value);
    } else if (!strcmp(name, "max")) {
        while (accept(lexer, ',')) {
            if (expression(lexer, 0, &more))
                return -1;
            *value = fmax(*value, more);
        }
    } else {
        return -1;
    }
    return accept(lexer, ')') ? 0 : -1;
}

static int operand(struct lexer *lexer, double *value)
{
    struct token token = lexer->next;
    if (accept(lexer, '-')) {
        int failed = expression(lexer, NEGATION, value);
        *value = -*value;
        return failed;
    }
    if (accept(lexer, '('))
        return expression(lexer, 0, value) || !accept(lexer, ')') ? -1 : 0;
    lexer_advance(lexer);
    *value = token.number;
    if (token.kind == NAME)
        return call(lexer, token.name, value);
    return token.kind == NUMBER ? 0 : -1;
}

static int apply(char sign, double *left, double right)
{
    switch (sign) {
    case '+': *left += right; return 0;
    case '-': *left -= right; return 0;
    case '*': *left *= right; return 0;
    case '/': *left /= right; return right == 0 ? -1 : 0;
    default: *left = pow(*left, right); return 0;
    }
}

static int expression(struct lexer *lexer, int floor, double *value)
{
    if (operand(lexer, value))
        return -1;
    while (lexer->next.kind == SIGN && binding(lexer->next.sign) > floor) {
        char sign = lexer->next.sign;
        int strength = binding(sign), right = sign == '^' && POWER_GROUPS_RIGHT;
        double inner;
        lexer_advance(lexer);
        if (expression(lexer, right ? strength - 1 : strength, &inner) || apply(sign, value, inner))
            return -1;
    }
    return 0;
}

int evaluate(const char *text, double *value)
{
    struct lexer lexer;
    lexer_start(&lexer, text);
    return expression(&lexer, 0, value) || lexer.next.kind != END ? -1 : 0;
}

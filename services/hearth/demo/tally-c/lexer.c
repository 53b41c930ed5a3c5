/* From characters to tokens. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tally.h"

static void take_name(struct lexer *lexer)
{
    size_t length = 0;
    while (isalnum((unsigned char)lexer->rest[length]))
        length++;
    lexer->next.kind = length < sizeof lexer->next.name ? NAME : BAD;
    if (lexer->next.kind == NAME) {
        memcpy(lexer->next.name, lexer->rest, length);
        lexer->next.name[length] = '\0';
    }
    lexer->rest += length;
}

void lexer_advance(struct lexer *lexer)
{
    while (isspace((unsigned char)*lexer->rest))
        lexer->rest++;
    char first = *lexer->rest;
    if (first == '\0') {
        lexer->next.kind = END;
    } else if (isdigit((unsigned char)first) || first == '.') {
        char *end;
        lexer->next.number = strtod(lexer->rest, &end);
        lexer->next.kind = end == lexer->rest ? BAD : NUMBER;
        lexer->rest = end == lexer->rest ? end + 1 : end;
    } else if (isalpha((unsigned char)first)) {
        take_name(lexer);
    } else {
        lexer->next.kind = strchr("+-*/^(),", first) ? SIGN : BAD;
        lexer->next.sign = first;
        lexer->rest++;
    }
}

void lexer_start(struct lexer *lexer, const char *text)
{
    lexer->rest = text;
    lexer_advance(lexer);
}

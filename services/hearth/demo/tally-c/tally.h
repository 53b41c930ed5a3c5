/* What the parts of the evaluator know of each other. */
#ifndef TALLY_H
#define TALLY_H

enum kind { END, NUMBER, NAME, SIGN, BAD };

struct token {
    enum kind kind;
    double number;
    char name[16];
    char sign;
};

struct lexer {
    const char *rest;
    struct token next;
};

void lexer_start(struct lexer *lexer, const char *text);
void lexer_advance(struct lexer *lexer);

/* 0 and the value, or -1 when the text is no expression. */
int evaluate(const char *text, double *value);

/* The smallest prime above n, or 0 past the table. */
unsigned next_prime(unsigned n);

#endif

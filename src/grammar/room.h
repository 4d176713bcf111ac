// grammar - structured output: schema, regular expression or EBNF become token masks with rollback.
//
// Purpose: say before each draw which tokens keep the answer inside the constraint.
// Promise: a constraint is enforced or refused with its reason, never dropped silently.
// Threads: compiled constraints are const and shared; a TokenMask belongs to one sequence.
//
// Reading order: regex.h (languages), lexer.h and earley.h (texts), automaton.h (masks), schema_algebra.h to schema_rules.h
// (JSON Schema); constraint.h is the door.
#pragma once

#include "grammar/constraint.h"
#include "grammar/token_mask.h"
#include "grammar/vocabulary.h"

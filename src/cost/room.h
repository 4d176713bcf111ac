// cost - bytes, operations and time of a step, from a ModelShape and a description of the hardware.
//
// Purpose: one place for the arithmetic behind `plan`, the verification budget and admission by time.
// Promise: pure functions of plain data; no measurement, no clock.
// Threads: any.
// Nothing in the spine asks for a cost yet; the scheduler links this room because its verification budget will.
#pragma once

// formats - the bytes of a checkpoint: number formats (codecs.h), the safetensors container, the checkpoint directory.
//
// Knows names, types, shapes and bytes; what a tensor means is the model's business (model/weights.h).
// Promise: bytes from outside give a value or a one-line error, never a crash; weights are mapped, never copied.
#pragma once

#include "formats/checkpoint.h"
#include "formats/codecs.h"
#include "formats/safetensors.h"

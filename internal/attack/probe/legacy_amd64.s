#include "textflag.h"

// func call32(nr uint32) int32
TEXT ·call32(SB), NOSPLIT, $0-12
	MOVL nr+0(FP), AX
	XORL BX, BX
	XORL CX, CX
	XORL DX, DX
	INT  $0x80
	MOVL AX, ret+8(FP)
	RET

	.file	"linked"
	.section	.text.f_default_dispatch_0_matmul,"ax",@progbits
	.type	f_default_dispatch_0_matmul,@function
f_default_dispatch_0_matmul:
.Lfunc_begin0:
	.loc	1 18 8
	.cfi_startproc
	vbroadcastss	(%rdi), %zmm1
.LBB0_2:
	vfmadd231ps	(%rax){1to16}, %zmm1, %zmm2
	vfmadd231ps	%zmm3, %zmm1, %zmm4 {%k1}
	vfmadd231ss	%xmm3, %xmm1, %xmm4
	jne	.LBB0_2
.Lfunc_end0:
	.size	f_default_dispatch_0_matmul, .Lfunc_end0-f_default_dispatch_0_matmul
	.cfi_endproc
	.type	f_default_dispatch_1_reduction,@function
f_default_dispatch_1_reduction:
	vaddps	%zmm3, %zmm1, %zmm4
	.size	f_default_dispatch_1_reduction, .Lfunc_end1-f_default_dispatch_1_reduction
	.type	iree_h2f_ieee,@function
iree_h2f_ieee:
	ret
	.size	iree_h2f_ieee, .Lfunc_end2-iree_h2f_ieee

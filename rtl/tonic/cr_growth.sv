// Credit that a flow has gained since it was last computed: cycles times rate, in bytes with 16 fractional bits.
//
// Source: Tonic, section 3.3.2. At most 2^22 cycles are credited at once; times are modulo 2^24 cycles. Combinational.
module cr_growth (
    input  logic [23:0] since_i,
    input  logic [23:0] now_i,
    input  logic [22:0] rate_i,
    output logic [45:0] growth_o
);
  logic [23:0] passed;
  logic [22:0] elapsed;
  assign passed = now_i - since_i;
  assign elapsed = (passed[23] || passed[22]) ? 23'd4194304 : passed[22:0];
  assign growth_o = {23'd0, elapsed} * {23'd0, rate_i};
endmodule

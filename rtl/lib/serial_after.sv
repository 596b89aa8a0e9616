// Serial comparison (RFC 1982): whether `a_i` follows `b_i`, that is, by 1 to 2^(W-1) - 1 steps, modulo 2^W.
//
// Sequence numbers are compared by this module only: `<` and `>` are wrong where numbers wrap.
module serial_after #(
    parameter int unsigned W = 24
) (
    input  logic [W-1:0] a_i,
    input  logic [W-1:0] b_i,
    output logic         after_o
);
  logic [W-1:0] distance;
  assign distance = a_i - b_i;
  assign after_o = !distance[W-1] && (distance != '0);
endmodule

// A range in a ring of W bits (W is a power of two): `count_i` bits are set, the first of them at `from_i`. A count of
// W or more sets all bits.
module range_mask #(
    parameter int unsigned W = 128
) (
    input  logic [$clog2(W)-1:0] from_i,
    input  logic [$clog2(W):0]   count_i,
    output logic [W-1:0]         mask_o
);
  localparam int unsigned B = $clog2(W);

  logic [B:0]   last;
  logic [W-1:0] below_from, below_end;
  logic         is_all, wraps;

  // The range is from..from+count. It wraps when the sum exceeds W; then the bits of both sides are set.
  assign last = {1'b0, from_i} + {1'b0, count_i[B-1:0]};
  assign wraps = last[B];
  assign is_all = count_i[B];

  below_mask #(.W(W)) i_from (.count_i({1'b0, from_i}), .mask_o(below_from));
  below_mask #(.W(W)) i_end (.count_i({1'b0, last[B-1:0]}), .mask_o(below_end));

  assign mask_o = is_all ? {W{1'b1}} : (wraps ? (~below_from | below_end) : (~below_from & below_end));
endmodule

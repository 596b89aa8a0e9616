// A ring of W bits (W is a power of two), rotated so that the bit at `head_i` comes first.
module ring_view #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]         map_i,
    input  logic [$clog2(W)-1:0] head_i,
    output logic [W-1:0]         view_o
);
  logic [2*W-1:0] both;
  assign both = {map_i, map_i} >> head_i;
  assign view_o = both[W-1:0];
endmodule

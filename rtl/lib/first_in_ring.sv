// Position of the first set bit in a ring of W bits (W is a power of two), from `head_i` on.
//
// Tonic, appendix C: the bits below the head are cleared in a second map. Both maps are searched from bit 0, side by
// side, and the answer is that of the masked map unless it is empty.
module first_in_ring #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]         map_i,
    input  logic [$clog2(W)-1:0] head_i,
    output logic                 found_o,
    output logic [$clog2(W)-1:0] position_o
);
  logic [W-1:0]         below_head;
  logic                 is_after;
  logic [$clog2(W)-1:0] after, first;

  below_mask #(.W(W)) i_mask (.count_i({1'b0, head_i}), .mask_o(below_head));
  first_set #(.W(W)) i_after (.map_i(map_i & ~below_head), .found_o(is_after), .position_o(after));
  first_set #(.W(W)) i_first (.map_i(map_i), .found_o(found_o), .position_o(first));

  assign position_o = is_after ? after : first;
endmodule

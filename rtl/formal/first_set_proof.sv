// Both forms of the search agree, and find the first set bit: it is set, and no bit below it is.
module first_set_proof #(
    parameter int unsigned W = 128
) (
    input logic [W-1:0] map_i
);
  logic                 found, is_found;
  logic [$clog2(W)-1:0] position, isolated;

  first_set #(.W(W)) i_first_set (.map_i(map_i), .found_o(found), .position_o(position));
  first_set_isolated #(.W(W)) i_isolated (.map_i(map_i), .found_o(is_found), .position_o(isolated));

  always_comb begin
    assert (found == is_found);
    assert (found == (map_i != '0));
    if (found) begin
      assert (position == isolated);
      assert (map_i[position]);
      for (int unsigned i = 0; i < W; i++) assert (!map_i[i] || i >= 32'(position));
    end
  end
endmodule

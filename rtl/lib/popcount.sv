// Number of set bits of a map of any width.
//
// Groups of six bits are counted by one function each, of three bits: a lookup table has six inputs. The bits of equal
// weight of all groups are counted in the same way, and their counts are added.
module popcount #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]       map_i,
    output logic [$clog2(W):0] count_o
);
  localparam int unsigned GROUPS = (W + 5) / 6;
  localparam int unsigned COUNT_W = $clog2(W) + 1;
  localparam int unsigned PLANE_W = $clog2(GROUPS) + 1;

  generate
    if (W <= 6) begin : g_group
      always_comb begin
        count_o = '0;
        for (int unsigned i = 0; i < W; i++) count_o = count_o + COUNT_W'(map_i[i]);
      end
    end else begin : g_groups
      logic [6*GROUPS-1:0] padded;
      logic [GROUPS-1:0]   ones, twos, fours;
      logic [PLANE_W-1:0]  count_of_ones, count_of_twos, count_of_fours;

      assign padded = (6 * GROUPS)'(map_i);

      for (genvar g = 0; g < GROUPS; g++) begin : g_group
        popcount_group i_group (.bits_i(padded[6*g+:6]), .count_o({fours[g], twos[g], ones[g]}));
      end

      popcount #(.W(GROUPS)) i_ones (.map_i(ones), .count_o(count_of_ones));
      popcount #(.W(GROUPS)) i_twos (.map_i(twos), .count_o(count_of_twos));
      popcount #(.W(GROUPS)) i_fours (.map_i(fours), .count_o(count_of_fours));

      assign count_o = COUNT_W'(count_of_ones) + (COUNT_W'(count_of_twos) << 1) + (COUNT_W'(count_of_fours) << 2);
    end
  endgenerate
endmodule

// Operations on window maps: bit 0 is the segment at the start of the window. Offsets have 9 bits; bits from K on are
// zero; 256 stands for "none".

module program_map_bit #(
    parameter int unsigned K = 128
) (
    input  logic [K-1:0] map,
    input  logic [8:0]   offset,
    output logic         value
);
  logic [511:0] wide;
  always_comb begin
    wide = 512'd0;
    wide[K-1:0] = map;
    value = wide[offset];
  end
endmodule

module program_map_first #(
    parameter int unsigned K = 128,
    parameter logic ONES = 1'b1
) (
    input  logic [K-1:0] map,
    input  logic [8:0]   from,
    output logic [8:0]   first
);
  logic [255:0] wide;
  logic [255:0] candidates;
  logic [15:0]  groups;
  logic [3:0]   group;
  logic [15:0]  bits;
  logic [3:0]   position;

  // Bits before `from` are cleared by a thermometer code; then a search among 16 groups of 16 bits, and one in the
  // first group that has any.
  always_comb begin
    wide = 256'd0;
    wide[K-1:0] = map;
    candidates = (ONES ? wide : ~wide) & ({256{1'b1}} << from);
  end

  always_comb begin
    for (int unsigned g = 0; g < 16; g++) groups[g] = |candidates[16*g+:16];
    group = 4'd0;
    for (int unsigned g = 0; g < 16; g++) if (groups[15-g]) group = 4'd15 - g[3:0];
  end

  always_comb begin
    bits = candidates[{group, 4'd0}+:16];
    position = 4'd0;
    for (int unsigned b = 0; b < 16; b++) if (bits[15-b]) position = 4'd15 - b[3:0];
    first = (groups == 16'd0) ? 9'd256 : {1'b0, group, position};
  end
endmodule

module program_map_count #(
    parameter int unsigned K = 128
) (
    input  logic [K-1:0] map,
    output logic [8:0]   count
);
  always_comb begin
    count = 9'd0;
    for (int unsigned b = 0; b < K; b++) count = count + {8'd0, map[b]};
  end
endmodule

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
  logic [15:0]  is_after;
  logic [15:0]  low;
  logic [15:0]  groups;
  logic [63:0]  positions;

  // Bits before `from` are cleared: in groups before its group, and in its group those below. Then the first bit of each
  // of 16 groups is searched beside the search of the first group that has any.
  always_comb begin
    wide = 256'd0;
    wide[K-1:0] = map;
    low = {16{1'b1}} << from[3:0];
    for (int unsigned g = 0; g < 16; g++) begin
      is_after[g] = {1'b0, g[3:0]} > from[8:4];
      candidates[16*g+:16] = (ONES ? wide[16*g+:16] : ~wide[16*g+:16])
          & ({16{is_after[g]}} | ({16{{1'b0, g[3:0]} == from[8:4]}} & low));
    end
  end

  always_comb begin
    positions = 64'd0;
    for (int unsigned g = 0; g < 16; g++) begin
      groups[g] = |candidates[16*g+:16];
      for (int unsigned b = 0; b < 16; b++) if (candidates[16*g+15-b]) positions[4*g+:4] = 4'd15 - b[3:0];
    end
  end

  always_comb begin
    first = 9'd256;
    for (int unsigned g = 0; g < 16; g++) if (groups[15-g]) first = {1'b0, 4'd15 - g[3:0], positions[4*(15-g)+:4]};
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

// Level 2 of FaSR's pool: blocks of bitmaps in singly linked lists, shared by all queue pairs.
//
// Source: FaSR (2025) sections III-C2 and III-D; mechanisms R-10, R-11. A map has a bit for each block in use; the
// first free block is offered. In a cycle a block can be taken, and linked behind `tail_i`, another one can be
// released, and a third one read; instead of taking a block, bits of the one that is read can be set. Memories are read
// without a register, so they are made of LUTs.
module fasr_pool2 #(
    parameter int unsigned COUNT = fasr_pkg::BLOCKS,
    parameter int unsigned BITS = fasr_pkg::BLOCK_BITS,
    localparam int unsigned W = $clog2(COUNT)
) (
    input  logic             clk,
    input  logic             rst_n,
    input  logic [W-1:0]     read_i,
    output logic [BITS-1:0]  word_o,
    output logic [W-1:0]     next_o,
    input  logic             set_i,         // sets `bits_i` in the block that is read
    output logic [W-1:0]     offer_o,
    output logic [W:0]       free_o,        // number of free blocks
    input  logic             take_i,        // takes the offered block, whose bits become `bits_i`
    input  logic             link_i,        // the block taken follows `tail_i`
    input  logic [W-1:0]     tail_i,
    input  logic [BITS-1:0]  bits_i,
    input  logic             release_i,
    input  logic [W-1:0]     release_at_i,
`ifdef FORMAL
    output logic [COUNT*W-1:0] nexts_o,
`endif
    output logic [COUNT-1:0] taken_o
);
  logic [BITS-1:0] words[COUNT];
  logic [W-1:0] nexts[COUNT];
  logic [COUNT-1:0] taken_q, taken_d;
  logic [W:0] free_q, free_d;
  logic any_free;

  first_set #(.W(COUNT)) i_offer (.map_i(~taken_q), .found_o(any_free), .position_o(offer_o));

  always_comb begin
    taken_d = taken_q;
    free_d = free_q;
    if (release_i) begin
      taken_d[release_at_i] = 1'b0;
      free_d = free_d + 1'b1;
    end
    if (take_i) begin
      taken_d[offer_o] = 1'b1;
      free_d = free_d - 1'b1;
    end
  end

  assign word_o = words[read_i];
  assign next_o = nexts[read_i];
  assign free_o = free_q;
  assign taken_o = taken_q;
`ifdef FORMAL
  always_comb begin
    for (int i = 0; i < COUNT; i++) nexts_o[W*i+:W] = nexts[i];
  end
`endif

  logic write;
  logic [W-1:0] write_at;
  logic [BITS-1:0] write_word;
  assign write = take_i || set_i;
  assign write_at = take_i ? offer_o : read_i;
  assign write_word = take_i ? bits_i : (word_o | bits_i);

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      taken_q <= '0;
      free_q <= (W + 1)'(COUNT);
    end else begin
      taken_q <= taken_d;
      free_q <= free_d;
    end
    if (write) words[write_at] <= write_word;
    if (take_i && link_i) nexts[tail_i] <= offer_o;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n) begin
      assert (any_free == (free_q != '0));
      if (take_i) assert (any_free && !set_i);
      if (take_i && link_i) assert (taken_q[tail_i]);
      if (release_i) assert (taken_q[release_at_i]);
      if (set_i) assert (taken_q[read_i]);
    end
  end
`endif
endmodule

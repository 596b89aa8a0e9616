// First-in first-out queue. The head is visible in the cycle after it was pushed; a push and a pop may be in one cycle.
// The memory is read without a register.
module fasr_fifo #(
    parameter int unsigned W = 8,
    parameter int unsigned DEPTH = 16,  // a power of two
    localparam int unsigned B = $clog2(DEPTH)
) (
    input  logic         clk,
    input  logic         rst_n,
    input  logic         push_i,
    input  logic [W-1:0] data_i,
    output logic [B:0]   space_o,   // number of entries that are free
    output logic         valid_o,
    output logic [W-1:0] head_o,
    input  logic         pop_i
);
  logic [W-1:0] entries[DEPTH];
  logic [B-1:0] read_q, write_q;
  logic [B:0]   space_q;

  assign head_o = entries[read_q];
  assign valid_o = space_q != (B + 1)'(DEPTH);
  assign space_o = space_q;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      read_q <= '0;
      write_q <= '0;
      space_q <= (B + 1)'(DEPTH);
    end else begin
      if (push_i) write_q <= write_q + 1'b1;
      if (pop_i) read_q <= read_q + 1'b1;
      if (push_i && !pop_i) space_q <= space_q - 1'b1;
      if (pop_i && !push_i) space_q <= space_q + 1'b1;
    end
    if (push_i) entries[write_q] <= data_i;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n) begin
      if (push_i) assert (space_q != '0);
      if (pop_i) assert (valid_o);
    end
  end
`endif
endmodule

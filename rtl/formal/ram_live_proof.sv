// Properties of `ram_live`: for an address that has been written, the last writer, and no other, for any sequence of
// writes. By induction: a reader for each address shows the whole state.
module ram_live_proof #(
    parameter int unsigned WRITES = 3,
    localparam int unsigned DEPTH = 4,
    localparam int unsigned A = 2,
    localparam int unsigned BANK_W = $clog2(WRITES)
) (
    input logic                clk,
    input logic [WRITES-1:0]   we_i,
    input logic [WRITES*A-1:0] waddr_i
);
  logic                    booted;
  logic [DEPTH*WRITES-1:0] live;
  logic [DEPTH-1:0]        is_written;
  logic [DEPTH*BANK_W-1:0] last;
  logic                    is_twice;
  initial booted = 1'b0;

  ram_live #(.DEPTH(DEPTH), .WRITES(WRITES), .READS(DEPTH)) i_live (
      .clk(clk), .we_i(we_i), .waddr_i(waddr_i), .raddr_i({2'd3, 2'd2, 2'd1, 2'd0}), .live_o(live)
  );

  always_comb begin
    is_twice = 1'b0;
    for (int unsigned w = 1; w < WRITES; w++) begin
      for (int unsigned v = 0; v < w; v++) begin
        if (we_i[w] && we_i[v] && waddr_i[w*A+:A] == waddr_i[v*A+:A]) is_twice = 1'b1;
      end
    end
    assume (!is_twice);
  end

  always_ff @(posedge clk) begin
    booted <= 1'b1;
    for (int unsigned w = 0; w < WRITES; w++) begin
      if (we_i[w]) begin
        is_written[waddr_i[w*A+:A]] <= 1'b1;
        last[waddr_i[w*A+:A]*BANK_W+:BANK_W] <= BANK_W'(w);
      end
    end
    if (!booted) is_written <= '0;
  end

  always_comb begin
    for (int unsigned a = 0; a < DEPTH; a++) begin
      for (int unsigned w = 0; w < WRITES; w++) begin
        if (booted && is_written[a]) begin
          assert (live[a*WRITES+w] == (last[a*BANK_W+:BANK_W] == BANK_W'(w)));
        end
      end
    end
  end
endmodule

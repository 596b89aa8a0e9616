// Proof for `fasr_pool2` with N blocks and two lists that grow and shrink in any order, in the same cycle too: free
// and listed blocks are all blocks, no block is in two lists, and heads lead to tails.
//
// For each block the proof records its list and its number in the order of that list. By induction: these records, the
// map of blocks in use and the links agree.
module fasr_lists #(
    parameter int unsigned N = 4,  // yosys proves 4 in seconds, and not 8 in a quarter of an hour
    localparam int unsigned W = $clog2(N)
) (
    input logic       clk,
    input logic       grows,      // a block is taken
    input logic       grows_at,   // for this list
    input logic       shrinks,    // a block is released
    input logic       shrinks_at
);
  logic booted;
  initial booted = 1'b0;
  always_ff @(posedge clk) booted <= 1'b1;

  logic [W-1:0] head[2], tail[2];
  logic [W:0]   first[2], after[2];  // numbers of the head, and of the next block of the list
  logic       owned[N], owner[N];
  logic [W:0]   number[N];

  logic [W-1:0] offer, next;
  logic [W:0]   free, length0, length1;
  logic [N-1:0] taken;
  logic takes, releases, is_empty;
  logic [W-1:0] released;
  assign length0 = after[0] - first[0];
  assign length1 = after[1] - first[1];
  assign takes = grows && (free != '0);
  assign is_empty = (grows_at ? length1 : length0) == '0;
  // A list whose tail is being linked keeps that block.
  assign releases = shrinks && ((shrinks_at ? length1 : length0) > {{W{1'b0}}, takes && (grows_at == shrinks_at)});
  assign released = head[shrinks_at];

  logic [3:0] word;
  logic [N*W-1:0] nexts;
  fasr_pool2 #(.COUNT(N), .BITS(4)) i_pool (
      .clk(clk), .rst_n(booted), .read_i(released), .word_o(word), .next_o(next), .set_i(1'b0), .offer_o(offer),
      .free_o(free), .take_i(takes && booted), .link_i(!is_empty), .tail_i(tail[grows_at]), .bits_i(4'd1),
      .release_i(releases && booted), .release_at_i(released), .taken_o(taken), .nexts_o(nexts)
  );

  always_ff @(posedge clk) begin
    if (!booted) begin
      for (int l = 0; l < 2; l++) begin
        first[l] <= '0;
        after[l] <= '0;
      end
      for (int i = 0; i < N; i++) owned[i] <= 1'b0;
    end else begin
      if (releases) begin
        owned[released] <= 1'b0;
        first[shrinks_at] <= first[shrinks_at] + 1'b1;
        head[shrinks_at] <= next;
      end
      if (takes) begin
        owned[offer] <= 1'b1;
        owner[offer] <= grows_at;
        number[offer] <= after[grows_at];
        after[grows_at] <= after[grows_at] + 1'b1;
        tail[grows_at] <= offer;
        if (is_empty) head[grows_at] <= offer;
      end
    end
  end

  logic [W:0]   listed;
  always_comb begin
    listed = '0;
    for (int i = 0; i < N; i++) listed = listed + {{W{1'b0}}, owned[i]};
  end

  always_comb begin
    if (booted) begin
      assert (free == (W + 1)'(N) - listed);
      assert (free + length0 + length1 == (W + 1)'(N));
      for (int i = 0; i < N; i++) begin
        assert (taken[i] == owned[i]);
        if (owned[i]) begin
          // The number is one of its list, and belongs to no other block.
          assert ((number[i] - first[owner[i]]) < (after[owner[i]] - first[owner[i]]));
          for (int j = 0; j < i; j++) assert (!owned[j] || (owner[j] != owner[i]) || (number[j] != number[i]));
          if (number[i] == first[owner[i]]) assert (head[owner[i]] == i[W-1:0]);
          if (number[i] + 1'b1 == after[owner[i]]) assert (tail[owner[i]] == i[W-1:0]);
          else begin
            assert (owned[nexts[W*i+:W]] && (owner[nexts[W*i+:W]] == owner[i]));
            assert (number[nexts[W*i+:W]] == number[i] + 1'b1);
          end
        end
      end
      for (int l = 0; l < 2; l++) begin
        if (after[l] != first[l]) begin
          assert (owned[head[l]] && (owner[head[l]] == l[0]) && (number[head[l]] == first[l]));
          assert (owned[tail[l]] && (owner[tail[l]] == l[0]) && (number[tail[l]] + 1'b1 == after[l]));
        end
      end
    end
  end
endmodule

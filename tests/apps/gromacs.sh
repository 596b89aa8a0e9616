#!/bin/sh
# Water in GROMACS on two ranks, with PME: energies, and the last positions, must be those of a run over shared memory.
# Each word behind the script stands before `gmx_mpi`.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
quietly() { "$@" > said.txt 2>&1 || { tail -n 20 said.txt; exit 1; }; }
top=$(dirname "$(find /usr/share/gromacs /usr/share -name spc216.gro 2>/dev/null | head -n 1)")
cat > water.top <<'END'
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"
[ system ]
Water
[ molecules ]
SOL 1728
END
cat > water.mdp <<'END'
integrator = md
nsteps = 100
dt = 0.001
nstenergy = 20
nstcalcenergy = 20
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
constraints = none
gen_vel = yes
gen_seed = 7
END
# Eight boxes of 216 molecules.
quietly gmx genconf -f "$top/spc216.gro" -nbox 2 2 2 -o water.gro
quietly gmx grompp -f water.mdp -c water.gro -p water.top -o water.tpr -maxwarn 5
"$@" gmx_mpi mdrun -s water.tpr -deffnm last -ntomp 1 -reprod -dlb no -pin off > output.txt 2>&1 ||
    { tail -n 30 output.txt; exit 1; }
quietly gmx dump -e last.edr
grep -E 'Potential|Kinetic En|Total Energy|Pressure ' said.txt | sed 's/^/result /'
echo "result positions: $(sha256sum < last.gro), $(wc -l < last.gro) lines"
